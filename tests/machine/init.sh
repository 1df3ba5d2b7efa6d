#!/bin/busybox sh
# The first program of a guest. It mounts what every machine has, loads the modules that lead to
# the agent, and runs the agent until the end.
#
# With `host=PYTHON,AGENT,FOLDER…` the guest has this machine's files as its root. They are
# read-only, so the disk gets what the guest writes. The disk itself has the folders, for programs
# that need an ordinary file system there.

# Prints the value of a word of the kernel's command line, with spaces for its commas.
word() {
  sed -n "s/.* $1=\([^ ]*\).*/\1/p" /proc/cmdline | tr , ' '
}

mount_host() {
  mkdir /host /disk /new
  mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=512000,cache=loose host /host
  mount -t ext4 /dev/vda /disk
  mkdir -p /disk/upper /disk/work
  mount -t overlay -o lowerdir=/host,upperdir=/disk/upper,workdir=/disk/work root /new
  for folder in "$@"; do
    mkdir -p "/disk$folder" "/new$folder"
    mount --bind "/disk$folder" "/new$folder"
  done
  for folder in proc sys dev; do
    mount --move "/$folder" "/new/$folder"
  done
  mount -t tmpfs run /new/run
  mount -t tmpfs tmp /new/tmp
  mkdir -p /new/usr/lib/modules
  mount -t tmpfs modules /new/usr/lib/modules
  cp -a /lib/modules/* /new/usr/lib/modules
}

/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/shm /dev/pts
mount -t devpts devpts /dev/pts

for module in $(word modules); do
  modprobe "$module" || echo "no module $module"
done
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
ip route add default via 10.0.2.2

export HOME=/tmp PYTHONDONTWRITEBYTECODE=1
echo "agent $(cut -d' ' -f1 /proc/uptime)"
set -- $(word host)
if [ $# -gt 0 ]; then
  python=$1 agent=$2
  shift 2
  mount_host "$@"
  export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  exec switch_root /new /bin/sh -c "$python $agent; reboot -f"
fi
export PATH=/bin:/sbin:/usr/bin PYTHONPATH=/opt/packages:/opt/claimd
python3 /opt/agent.py
poweroff -f
