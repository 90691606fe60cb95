"""What every part imports: errors, ranges, options, files, records of attention."""
