"""Trains the teacher and distils the student."""
