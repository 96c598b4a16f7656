//! MonMap, OSDMap and incrementals, pools; object to PG to OSDs.
