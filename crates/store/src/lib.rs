//! The crash-safe object store on a file or block device.
