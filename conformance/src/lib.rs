//! Case data, and later the engine that judges foreign implementations.
