"""What is better looked at."""
