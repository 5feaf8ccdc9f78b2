"""The web page at `/`: static files (HTML, CSS, JavaScript) and their routes."""
