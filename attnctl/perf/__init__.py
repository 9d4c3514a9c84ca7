"""How fast the kernels are that smoke found right: times, what bounds them, what became slower."""
