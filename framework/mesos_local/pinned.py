"""Every number that belongs to one build of libmesos, and the digests that guard them.

The package index carries Mesos 1.11.0 as the Python 2.7 egg of `mesos.scheduler`. Its extension module `_scheduler.so`
is the whole of libmesos, master and agent included, and it exports all of its C++ symbols. `artefact` refuses any egg
or library whose digest differs, so the addresses and sizes below, read from exactly this file, cannot meet another.
"""

from __future__ import annotations

PROJECT = "mesos.scheduler"
VERSION = "1.11.0"
EGG = "mesos.scheduler-1.11.0-py2.7-linux-x86_64.egg"
EGG_SHA256 = "4940ebb70894ee004cf8a12b7b66b52a351be1070ec2a4e6f7dae4ec04f8cb61"
MEMBER = "mesos/scheduler/_scheduler.so"  # inside the egg
LIBRARY_SHA256 = "b4c42eac577d6262d868c65cbb4d3d3ba6ff60595965bc464f4496a99d428395"  # of MEMBER after `relink`
LIBRARY = f"libmesos-{VERSION}-{LIBRARY_SHA256[:12]}.so"

# The two OpenSSL names it was linked with, and what today's systems have (relink.py says why that is sound).
RENAMED_LIBRARIES = {b"libssl.so.1.0.0": b"libssl.so.3", b"libcrypto.so.1.0.0": b"libcrypto.so.3"}
OBSOLETE_VERSIONS = ("OPENSSL_1", "CURL_OPENSSL")

# Debian's packages of the libraries that it needs and that a small installation lacks.
DEBIAN_PACKAGES = "libsvn1 libapr1 libsasl2-2 libcurl4 libssl3"

# C++ symbols, mangled. STRING is libstdc++'s std::string, part of many of them.
STRING = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
INITIALIZE = f"_ZN7process10initializeERK6OptionI{STRING}ES9_S9_"
LOCAL_FLAGS = "_ZN5mesos8internal5local5FlagsC1Ev"
LAUNCH = "_ZN5mesos8internal5local6launchERKNS1_5FlagsEPNS_9allocator9AllocatorE"
APPOINT_INFO = "_ZN5mesos6master8detector24StandaloneMasterDetector7appointERK6OptionINS_10MasterInfoEE"
APPOINT_UPID = "_ZN5mesos6master8detector24StandaloneMasterDetector7appointERKN7process4UPIDE"
UPID = "_ZN7process4UPIDC1EPKc"
LAUNCHER = "_ZN5mesos8internal5slave24MesosContainerizerLaunch"
LAUNCHER_VTABLE = "_ZTVN5mesos8internal5slave24MesosContainerizerLaunchE"
LOAD_FLAGS = f"_ZN5flags9FlagsBase4loadERK6OptionI{STRING}EiPKPKcbb"

# Addresses in the file (`nm libmesos.so`). LAUNCH_AT tells where the loader put the file: loaded address - LAUNCH_AT.
LAUNCH_AT = 0x2437D30
DETECTOR_AT = 0x4CEC1B8  # the static `detector` of mesos::internal::local, a pointer; static, so not exported

# Offsets in objects that we build by hand, from disassembling their constructors.
WORK_DIR_IN_FLAGS = 8  # mesos::internal::local::Flags: after the vtable pointer, std::string work_dir (32 bytes)
NUM_SLAVES_IN_FLAGS = 40  # then int num_slaves
FLAGS_IN_LAUNCHER = 224  # MesosContainerizerLaunch: 8 vtable pointer + 32 name + 184 Flags' virtual base

# Room for objects whose size we do not know; each is far smaller.
OBJECT_ROOM = 65536
