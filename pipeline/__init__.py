"""The command line, the experiment file and the order of the stages."""
