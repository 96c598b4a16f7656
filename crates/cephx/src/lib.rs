//! cephx keys, keyrings, tickets, handshakes and capability grammars.
