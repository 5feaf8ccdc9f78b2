"""The web page at `/`: files that a browser gets as they are (HTML, CSS, JavaScript), and the routes that give them."""
