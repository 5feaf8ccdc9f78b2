"""ZooKeeper state store: one transaction per decision, one leader per service.

    <chroot>/dcos-service-<name>    as in the DC/OS SDK: '/' as '__' (a literal '_' as '%5F')
      head                          JSON, the current state. Its data version is the service's version: every change
                                    sets it, only the removal of the service deletes it
      state-<incarnation>/          a new incarnation starts after someone removes the whole tree
        entry-<number>              writes of one decision
        part-<number>-<token>-<i>   piece i of a snapshot: all keys and values after that entry
      lock                          ephemeral, of the leading scheduler; JSON: its host and process
      leader-<token>                ephemeral, created with `lock`; its name is never reused

The state is the snapshot named by `head` (if any) and the entries after it. Nodes below `state-...` are never changed,
so readers need no lock and see only whole decisions.

    small decision    one multi-operation: check leader, set head (compare-and-set), create entry
    large decision,   upload the parts of a snapshot, then one multi-operation: check leader, set head
    or many entries   (compare-and-set), check that the parts exist. `head` is the commit marker

A transaction therefore has two or three operations and at most 512 KiB, for any number of tasks (ZooKeeper's limit is
1 MB). A node with the snapshot's number or a lower one is garbage, unless it belongs to the snapshot. Each snapshot
removes such nodes.

Values are compressed together (zlib; a thousand task records take 25 KB) after a byte with their encoding
(`layout.SCHEMA`). `head` has the schema of the state. A newer schema is rejected.

A commit without an answer (connection lost, session expired, no reply) is sent again. The compare-and-set stores it
only once, and `head` identifies its writer. If ZooKeeper does not answer within `request_timeout`, the store raises
StoreConflictError. The next load first makes sure that the lost commit can no longer take effect.

With credentials or a client certificate, only their owner has access to the service's nodes. Without them, every client
has access. Supports ZooKeeper 3.4 (DC/OS) to 3.8, and TLS from ZooKeeper 3.5.
"""

from tf_scheduler.store.zookeeper.store import ZooKeeperStore, is_world_accessible

from .address import ZooKeeperAddress, ZooKeeperTls

__all__ = ["ZooKeeperAddress", "ZooKeeperStore", "ZooKeeperTls", "is_world_accessible"]
