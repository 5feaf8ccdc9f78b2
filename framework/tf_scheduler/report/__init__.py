"""One run as one page: no script, nothing fetched, readable in light and dark and on a phone."""
