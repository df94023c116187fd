"""What simulations did, as a page to look at."""
