"""Side-by-side timing against other libraries; never imported by the product."""
