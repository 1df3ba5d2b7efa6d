package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	draclient "k8s.io/dynamic-resource-allocation/client"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// node is a driver on one: as the helper asks for one, and as small as one can be.
type node struct {
	*fleet
	name, folder string

	connections *http.Client
	claims      *draclient.Client
	helper      *kubeletplugin.Helper

	mutex    sync.Mutex
	goal     *goal
	there    chan struct{}
	prepared map[types.UID][]kubeletplugin.Device
}

// serve connects to the API server and opens the sockets. What fails is said and leaves the node out.
func (n *node) serve(ctx context.Context) {
	if err := n.begin(ctx); err != nil {
		n.fleet.failed(fmt.Sprintf("%s: %v", n.name, err))
	}
}

func (n *node) begin(ctx context.Context) error {
	// client-go keeps one transport for all clients of the same address and credentials, over which HTTP/2 would put the requests
	// of all nodes. One with a function of its own to dial is another one's to it.
	config := rest.CopyConfig(n.config)
	config.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	connections, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfigAndClient(config, connections)
	if err != nil {
		return err
	}
	n.connections, n.claims = connections, draclient.New(client)

	plugin, registry := filepath.Join(n.folder, "plugin"), filepath.Join(n.folder, "registry")
	for _, folder := range []string{plugin, registry, filepath.Join(n.folder, "cdi")} {
		if err := os.MkdirAll(folder, 0o750); err != nil {
			return err
		}
	}
	n.prepared = map[types.UID][]kubeletplugin.Device{}
	n.helper, err = kubeletplugin.Start(klog.NewContext(ctx, logr.New(listener{n})), n,
		kubeletplugin.KubeClient(client), kubeletplugin.NodeName(n.name), kubeletplugin.DriverName(n.driver),
		kubeletplugin.RegistrarDirectoryPath(registry), kubeletplugin.PluginDataDirectoryPath(plugin))
	return err
}

// stop ends what `serve` began, its connection too.
func (n *node) stop() {
	if n.helper != nil {
		n.helper.Stop()
		utilnet.CloseIdleConnectionsFor(n.connections.Transport)
	}
}

// publish says what the node has. It does not wait for more than the first list of the node's slices.
func (n *node) publish() {
	if n.helper == nil {
		return
	}
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: n.all()}}}
	resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{n.name: pool}}
	if err := n.helper.PublishResources(context.Background(), resources); err != nil {
		n.fleet.failed(fmt.Sprintf("%s: %v", n.name, err))
	}
}

func (n *node) publishAndWait(ctx context.Context, at *goal) {
	there := n.aim(at)
	n.publish()
	select {
	case <-there:
	case <-ctx.Done():
	}
}

// all has the attributes and capacities of the example driver's GPUs: 283 bytes of JSON each, 3,189 for a slice of eight.
func (n *node) all() []resourceapi.Device {
	var devices []resourceapi.Device
	for index := range int64(n.devices) {
		id := uuid.NewSHA1(uuid.NameSpaceDNS, fmt.Appendf(nil, "%s-%d", n.name, index))
		device := resourceapi.Device{
			Name: fmt.Sprintf("gpu-%d", index),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
				"index":         {IntValue: &index},
				"uuid":          {StringValue: ptr.To("gpu-" + id.String())},
				"model":         {StringValue: ptr.To("LATEST-GPU-MODEL")},
				"driverVersion": {VersionValue: ptr.To("1.0.0")},
			},
			AllowMultipleAllocations: ptr.To(false),
			Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
				"memory":  {Value: resource.MustParse("80Gi")},
				"compute": {Value: resource.MustParse("100")},
			},
		}
		if index < n.sick.Load() {
			device.Taints = []resourceapi.DeviceTaint{
				{Key: "peer.claimd.dev/sick", Value: "failed", Effect: resourceapi.DeviceTaintEffectNoSchedule},
			}
		}
		devices = append(devices, device)
	}
	return devices
}

// aim has the node count for this goal, once, as soon as the API server has what is published after. The goal before is given up.
// The channel closes when the goal is reached or given up.
func (n *node) aim(at *goal) <-chan struct{} {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.goal != nil {
		close(n.there)
	}
	n.goal, n.there = at, make(chan struct{})
	return n.there
}

func (n *node) stands() {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.goal != nil {
		n.fleet.reached(n.goal)
		close(n.there)
		n.goal = nil
	}
}

// HandleError hears of what the slices' controller will try again.
func (n *node) HandleError(_ context.Context, err error, text string) {
	n.fleet.failed(fmt.Sprintf("%s: %s: %v", n.name, text, err))
}

// WatchHealthStatus is a thing that the example driver has behind a flag.
func (n *node) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

// listener is the log of a node. Only there does the slices' controller say when it has compared what is wanted with what the API
// server has, and when that has taken a write: with one slice a node it stands after either, and nobody has to ask the API server.
// A comparison under way while another thing is published would count too early; it takes microseconds, twice a minute at most.
type listener struct{ *node }

const heard = 5 // the verbosity of those lines; below that of calls by gRPC

func (listener) Init(logr.RuntimeInfo)            {}
func (listener) Enabled(level int) bool           { return level <= heard }
func (l listener) WithValues(...any) logr.LogSink { return l }
func (l listener) WithName(string) logr.LogSink   { return l }
func (l listener) Error(err error, text string, _ ...any) {
	l.fleet.failed(fmt.Sprintf("%s: %s: %v", l.name, text, err))
}

func (l listener) Info(_ int, text string, pairs ...any) {
	switch text {
	case "Created new resource slice", "Updated existing resource slice":
		l.stands()
	case "Completed comparison":
		for index := 0; index+1 < len(pairs); index += 2 {
			if pairs[index] != "numMatchedSlices" && pairs[index+1] != 0 {
				return
			}
		}
		l.stands()
	}
}
