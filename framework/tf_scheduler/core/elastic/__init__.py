"""Elastic sizing: numbers of workers, and live workers of a running chief."""
