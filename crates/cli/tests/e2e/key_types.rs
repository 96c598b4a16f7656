//! Keys of type `aes256k` beside those of type `aes`: official clients of 16.2, which know only the
//! latter, and our own.

use crate::common::{Cluster, binary};

/// The first lines of the scripts.
fn prologue() -> String {
    format!("spirula={}\n", binary().display())
}

#[test]
fn clients_with_keys_of_either_type_share_a_pool() {
    let c = Cluster::up("key-types", 3, &[]);
    c.wait_healthy();
    let prologue = prologue();
    c.sh(&format!(
        "{prologue}
         ceph osd pool create k 8 8 replicated; ceph osd pool application enable k rbd
         for kind in aes aes256k; do
             ceph auth get-or-create client.$kind mon 'profile rbd' osd 'profile rbd pool=k' mgr 'profile rbd' \\
                 --key-type=$kind > $kind.keyring
         done
         ceph-authtool -p -n client.aes aes.keyring | grep ^AQ > /dev/null
         grep 'key = Ag' aes256k.keyring > /dev/null
         # Nothing of a new cluster is of the new type by itself, but the services' secrets.
         test $(ceph auth ls 2> /dev/null | grep -c 'key: Ag') = 1
         ceph auth dump-keys -f json | grep -F '\"type_str\":\"aes256k\"' > /dev/null

         head -c 5000000 /dev/urandom > in
         old='rados -n client.aes -k aes.keyring -p k'
         for args in '' '--ms_client_mode=secure --ms_mon_client_mode=secure' '--ms_client_mode=crc --ms_mon_client_mode=crc'; do
             new=\"$spirula rados $args -n client.aes256k -k aes256k.keyring -p k\"
             $new put fromnew in; $old get fromnew out; cmp in out
             $old put fromold in; $new get fromold out; cmp in out
             $new rm fromnew; $old rm fromold; rm out
         done

         head -c 20000000 /dev/urandom > disk
         new=\"$spirula rbd -n client.aes256k -k aes256k.keyring\"
         old='rbd -n client.aes -k aes.keyring'
         $new import --no-progress disk k/i; $old export --no-progress k/i out; cmp disk out; rm out
         $old snap create --no-progress k/i@s; $new export --no-progress k/i@s out; cmp disk out
         $old snap rm --no-progress k/i@s; $new rm --no-progress k/i
         $spirula ceph -n client.aes256k -k aes256k.keyring -s > /dev/null"
    ));
    assert_eq!(c.sh("ceph health").trim(), "HEALTH_OK");

    // 16.2's behaviour with a key of an unknown type is its own; it ends soon and harms nobody.
    let (code, said) = c.sh_fails("timeout 20 rbd -n client.aes256k -k aes256k.keyring ls k");
    assert_eq!(code, 5, "{said}");
    assert!(said.contains("Malformed input"), "{said}");
    // A client with the old key of an entity whose new key is of the other type is refused.
    c.sh("cp aes.keyring old.keyring; ceph auth rotate client.aes --key-type aes256k > aes.keyring");
    let (_, said) = c.sh_fails("timeout 20 ceph -n client.aes -k old.keyring -s");
    assert!(said.contains("errno 13"), "{said}");
    c.sh(&format!(
        "{prologue} $spirula rados -n client.aes -k aes.keyring -p k ls"
    ));
    c.sh("ceph auth rotate client.aes > aes.keyring; rados -n client.aes -k aes.keyring -p k ls");

    for (script, text) in [
        ("ceph auth add client.x --key-type foo", "invalid key type: foo"),
        (
            "ceph auth rotate client.aes --key-type none",
            "invalid key type: none",
        ),
        (
            "ceph mon set auth_allowed_ciphers aes256k",
            "client.admin could not log in any more",
        ),
        ("ceph mon set auth_service_cipher foo", "invalid key type: foo"),
    ] {
        let (code, said) = c.sh_fails(script);
        assert!(code == 22 && said.contains(text), "{script}: {code} {said}");
    }
}

#[test]
fn daemons_get_new_keys_of_the_other_type() {
    let c = Cluster::up("key-rotation", 3, &[]);
    c.sh("ceph osd pool create k 8 8 replicated; ceph osd pool application enable k test; rados -p k put o ceph.conf");
    c.sh("ceph mon set auth_preferred_cipher aes256k");
    c.sh(
        "for n in {1..50}; do
             ceph health detail > health
             grep -F 'AUTH_INSECURE_SERVICE_KEY_TYPE: 3 auth service entities with insecure key types' health && break
             sleep 0.2
         done > /dev/null
         grep -F 'entity osd.2 using insecure key type: aes' health
         grep -F 'entity client.admin using insecure key type: aes' health
         grep -F 'Monitors are configured to allow auth using insecure key types' health",
    );
    for n in 0..3 {
        let osd = format!("osd.{n}");
        c.sh(&format!(
            "ceph auth rotate {osd} > {osd}/keyring; grep 'key = Ag' {osd}/keyring > /dev/null"
        ));
        c.kill(&osd);
        // The others mark it down, its supervisor starts it, and it is let in with the new key.
        c.sh("for n in {1..300}; do
                  ceph osd stat | grep -F '3 osds: 3 up' > /dev/null && rados -p k put o ceph.conf && break
                  sleep 0.2
              done
              rados -p k get o out; cmp ceph.conf out");
    }
    c.sh("ceph health detail > health; test $(grep -c AUTH_INSECURE_SERVICE_KEY_TYPE health) = 0");
    // Back to the type that 16.2 knows, and quiet.
    c.sh("ceph mon set auth_preferred_cipher aes");
    c.wait_healthy();
}

#[test]
fn a_cluster_of_aes256k_keys_alone() {
    let c = Cluster::up("aes256k", 3, &["--mons", "3", "--key-type", "aes256k"]);
    let prologue = prologue();
    c.sh(&format!(
        "{prologue}
         for keyring in ceph.client.admin.keyring osd.*/keyring mon.*/keyring; do
             grep 'key = Ag' $keyring > /dev/null; test $(grep -c 'key = AQ' $keyring) = 0
         done
         ceph() {{ $spirula ceph \"$@\"; }}
         test $(ceph auth ls 2> /dev/null | grep -c 'key: AQ') = 0
         ceph mon dump -f json 2> /dev/null | grep -F '\"auth_preferred_cipher\":{{\"name\":\"aes256k\",\"value\":2}}' > /dev/null
         ceph osd pool create k 8 8 replicated; ceph osd pool application enable k rbd
         # While keys of the other type are allowed, a client of 16.2 may have one.
         ceph auth get-or-create client.old mon 'profile rbd' osd 'profile rbd pool=k' --key-type aes > old.keyring
         rados -n client.old -k old.keyring -p k put o ceph.conf
         $spirula rados -p k get o out; cmp ceph.conf out
         ceph mon set auth_allowed_ciphers aes256k"
    ));
    let (_, said) = c.sh_fails("timeout 20 ceph -n client.old -k old.keyring -s");
    assert!(said.contains("errno 13"), "{said}");
    c.sh(&format!(
        "{prologue}
         $spirula ceph auth rotate client.old > old.keyring
         $spirula rados -n client.old -k old.keyring -p k ls > /dev/null
         for n in {{1..100}}; do $spirula ceph health | grep HEALTH_OK && break; sleep 0.2; done > /dev/null
         $spirula ceph health detail | grep ^HEALTH_OK"
    ));
    // All of it is there after a restart, and an OSD that is added gets such a key.
    c.down();
    c.start(4, &[]);
    c.sh(&format!(
        "{prologue}
         grep 'key = Ag' osd.3/keyring > /dev/null
         $spirula rados -p k get o again; cmp ceph.conf again
         head -c 5000000 /dev/urandom > disk
         $spirula rbd import --no-progress disk k/i; $spirula rbd export --no-progress k/i out2; cmp disk out2
         $spirula ceph mon dump 2> /dev/null | grep -x 'auth_allowed_ciphers aes256k'"
    ));
}
