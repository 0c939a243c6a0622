"""Cost model, break-even, figures and the page."""
