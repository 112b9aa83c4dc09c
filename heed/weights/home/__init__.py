"""Models of heed's own in the layout of a family that has their shape, so that other libraries load them."""
