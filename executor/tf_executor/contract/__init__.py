"""Code that executor, scheduler and commands share. Standard library, Python 3.8."""
