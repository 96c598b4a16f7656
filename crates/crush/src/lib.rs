//! CRUSH map and bit-exact mapper.
