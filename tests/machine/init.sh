#!/bin/busybox sh
# The first program of a guest. It mounts what every machine has, loads the modules that lead to
# the agent, and runs the agent until the end.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/shm /dev/pts
mount -t devpts devpts /dev/pts

for module in $(sed -n 's/.* modules=\([^ ]*\).*/\1/p' /proc/cmdline | tr , ' '); do
  modprobe "$module" || echo "no module $module"
done
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2

export PATH=/bin:/sbin:/usr/bin HOME=/tmp PYTHONPATH=/opt/packages:/opt/claimd
export PYTHONDONTWRITEBYTECODE=1
echo "agent $(cut -d' ' -f1 /proc/uptime)"
python3 /opt/agent.py
poweroff -f
