"""One event of each type, as a Mesos master sends them to a scheduler."""

from __future__ import annotations

import base64
from typing import Any

from tf_executor.contract.reports import Progress

REPORT = base64.b64encode(Progress(7, 1e9, 120, 500).encode("worker-0__1")).decode()
OFFER = {
    "id": {"value": "o-1"},
    "agent_id": {"value": "a-1"},
    "hostname": "agent-1",
    "url": {"address": {"hostname": "agent-1", "ip": "127.0.0.1", "port": 5051}},
    "resources": [
        {"name": "cpus", "type": "SCALAR", "scalar": {"value": 2.0}, "allocation_info": {"role": "r"}},
        {"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 31000, "end": 31001}]}},
        {"name": "disks", "type": "SET", "set": {"item": ["a"]}},
    ],
    "attributes": [
        {"name": "rack", "type": "TEXT", "text": {"value": "a"}},
        {"name": "weight", "type": "SCALAR", "scalar": {"value": 1.5}},
        {"name": "slots", "type": "RANGES", "ranges": {"range": [{"begin": 1, "end": 3}]}},
    ],
    "allocation_info": {"role": "r"},
}
STATUS = {
    "task_id": {"value": "worker-0__1"},
    "state": "TASK_RUNNING",
    "agent_id": {"value": "a"},
    "uuid": "dQ==",
    "reason": "REASON_EXECUTOR_TERMINATED",
    "source": "SOURCE_EXECUTOR",
    "message": "exit code 3",
    "healthy": True,
    "timestamp": 1.5,
    "data": base64.b64encode(b'{"exit_code": 3}').decode(),
    "container_status": {"network_infos": [{"ip_addresses": [{"ip_address": "10.0.0.1"}]}]},
}
WINDOW = {"start": {"nanoseconds": 10**18}, "duration": {"nanoseconds": 10**12}}
DOMAIN = {"fault_domain": {"region": {"name": "eu"}, "zone": {"name": "a"}}}
EVENTS: dict[str, dict[str, Any]] = {
    str(event["type"]): event
    for event in (
        {
            "type": "SUBSCRIBED",
            "subscribed": {"framework_id": {"value": "fw-1"}, "master_info": {"domain": DOMAIN}},
        },
        {"type": "OFFERS", "offers": {"offers": [{**OFFER, "domain": DOMAIN, "unavailability": WINDOW}]}},
        {"type": "RESCIND", "rescind": {"offer_id": {"value": "o-1"}}},
        {
            "type": "INVERSE_OFFERS",
            "inverse_offers": {
                "inverse_offers": [{"id": {"value": "i"}, "agent_id": {"value": "a"}, "unavailability": WINDOW}]
            },
        },
        {"type": "RESCIND_INVERSE_OFFER", "rescind_inverse_offer": {"inverse_offer_id": {"value": "i"}}},
        {"type": "UPDATE", "update": {"status": STATUS}},
        {"type": "FAILURE", "failure": {"agent_id": {"value": "a"}, "executor_id": {"value": "e"}, "status": 9}},
        {
            "type": "MESSAGE",
            "message": {"agent_id": {"value": "a"}, "executor_id": {"value": "worker-0__1"}, "data": REPORT},
        },
    )
}
