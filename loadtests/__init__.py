"""Arrivals, scenarios, the locustfile, validity rules and the capacity search."""
