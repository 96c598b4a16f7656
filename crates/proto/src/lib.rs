//! Every message, official and our own.
