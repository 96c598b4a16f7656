//! Native RADOS client.
