"""Recognition of digits and other small objects on larger images."""
