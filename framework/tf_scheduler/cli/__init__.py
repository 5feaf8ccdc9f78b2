"""The program `dcos-tensorflow`: commands, output, local clusters and services."""
