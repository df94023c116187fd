"""The node agent: prepares, starts, watches and stops ranks on one node."""
