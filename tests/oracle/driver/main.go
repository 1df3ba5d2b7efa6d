// A driver as anybody writes one with Kubernetes' own library: `driver KUBECONFIG NODE KUBELET_FOLDER`. It publishes two
// devices and answers claims with their names; it opens no device. It ends when its standard input does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

const name = "go.example.com"

type driver struct{}

func (driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	answers := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		answer := kubeletplugin.PrepareResult{}
		for _, given := range claim.Status.Allocation.Devices.Results {
			if given.Driver == name {
				answer.Devices = append(answer.Devices, kubeletplugin.Device{
					Requests: []string{given.Request}, PoolName: given.Pool, DeviceName: given.Device,
				})
			}
		}
		answers[claim.UID] = answer
	}
	return answers, nil
}

func (driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	answers := map[types.UID]error{}
	for _, claim := range claims {
		answers[claim.UID] = nil
	}
	return answers, nil
}

func (driver) HandleError(_ context.Context, err error, text string) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", text, err)
}

func (driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return errors.New("nothing is known of health")
}

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, node, folder string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	own := filepath.Join(folder, "plugins", name)
	if err := os.MkdirAll(own, 0o750); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, driver{},
		kubeletplugin.KubeClient(client), kubeletplugin.NodeName(node), kubeletplugin.DriverName(name),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(folder, "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(own))
	if err != nil {
		return err
	}
	defer helper.Stop()
	slots := int64(0)
	devices := []resourceapi.Device{
		{Name: "dev-0", Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"slot": {IntValue: &slots}}},
		{Name: "dev-1"},
	}
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: devices}}}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
