"""State in ZooKeeper: one small transaction per decision, and one live scheduler per service.

    <chroot>/dcos-service-<name>    as the DC/OS SDK names it: '/' as '__' (a '_' of the name's own as '%5F')
      head                          JSON: what is current. Its data version is the service's version: every change
                                    sets it, and only the end of the service deletes it
      state-<incarnation>/          the incarnation changes when somebody has removed the whole tree
        entry-<number>              the writes of one decision
        part-<number>-<token>-<i>   piece i of a snapshot: all keys and values as of that number
      lock                          ephemeral, of the scheduler that leads; JSON: who it is
      leader-<token>                ephemeral, made with `lock`; its name is never used again

A state is the snapshot that `head` names (none at first) and then the entries up to the last number. Nodes under
`state-...` are written once and never changed, so readers need no lock, disturb nobody, and see whole decisions only.

    small decision    one multi-operation: check leader, set head (compare-and-set), create entry
    large decision,   upload the parts of a snapshot, which nobody looks at until the one multi-operation: check leader,
    or many entries   set head (compare-and-set), check that the parts are there. `head` is the commit marker

So no transaction is larger than 512 KiB, whatever the number of tasks (ZooKeeper's limit is 1 MB), and one has two
or three operations in general. What is numbered up to the snapshot and is not of it is dead for ever: a writer that
prepared it had to set a `head` that is gone. It is removed after each snapshot.

Values are compressed together (zlib; a thousand task records take 25 KB) behind a byte that says how they are written
(`layout.SCHEMA`). `head` has the schema of the whole; an older one is read, and its first change stores everything anew
in the current schema, in one step; a newer one is refused.

A commit without an answer (connection lost, session expired, no reply) is sent again as it is: the compare-and-set
lets only one of them act, and `head` says whose it was. So the outcome is known, or, if ZooKeeper stays away for
longer than `request_timeout`, StoreConflict is raised; the next load then first makes sure that what was sent cannot
act any more.

With credentials or a client certificate only their owner may read and write the nodes, from the service's own down;
without, everybody may.
ZooKeeper 3.4 (DC/OS) to 3.8, TLS from 3.5.
"""

from tf_scheduler.store.zookeeper.place import Tls, ZooKeeperPlace
from tf_scheduler.store.zookeeper.store import ZooKeeperStore

__all__ = ["Tls", "ZooKeeperPlace", "ZooKeeperStore"]
