"""The loop that trains any task, and what it stands on."""
