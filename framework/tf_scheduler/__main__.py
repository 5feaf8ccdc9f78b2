"""`python -m tf_scheduler`: the same as the command `dcos-tensorflow`."""

from tf_scheduler.cli.start import main

if __name__ == "__main__":
    main()
