"""One module for each command of `dcos-tensorflow`."""
