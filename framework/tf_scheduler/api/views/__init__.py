"""Views: pure functions from a state snapshot to a JSON body and an HTTP status."""
