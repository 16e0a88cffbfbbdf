"""Typed, checked doors to native code. `native` holds what belongs to no single kernel; the others have one module each."""
