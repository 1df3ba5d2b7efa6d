package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// PrepareResourceClaims writes a CDI file for each claim, and the devices' status if that is asked for.
func (n *node) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	answers := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		devices, err := n.prepare(ctx, claim)
		answers[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return answers, nil
}

func (n *node) prepare(ctx context.Context, claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	if known, found := n.prepared[claim.UID]; found {
		return known, nil
	}
	var devices []kubeletplugin.Device
	var described []map[string]any
	var status []resourceapi.AllocatedDeviceStatus
	for _, given := range claim.Status.Allocation.Devices.Results {
		if given.Driver != n.driver {
			continue
		}
		unique := fmt.Sprintf("%s-%s", claim.UID, given.Device)
		devices = append(devices, kubeletplugin.Device{
			Requests: []string{given.Request}, PoolName: given.Pool, DeviceName: given.Device,
			CDIDeviceIDs: []string{n.kind() + "=" + unique},
		})
		variables := []string{"GPU_DEVICE_RESOURCE_CLAIM=" + string(claim.UID), "DRA_ADMIN_ACCESS=false", "GPU_DEVICE=" + given.Device}
		described = append(described, map[string]any{"name": unique, "containerEdits": map[string]any{"env": variables}})
		status = append(status, n.statusOf(given))
	}
	if n.status {
		if err := n.tell(ctx, claim, status); err != nil {
			return nil, err
		}
	}
	specification := map[string]any{"cdiVersion": "0.3.0", "kind": n.kind(), "devices": described}
	if err := n.write(claim.UID, specification); err != nil {
		return nil, err
	}
	n.prepared[claim.UID] = devices
	return devices, nil
}

func (n *node) kind() string { return "k8s." + n.driver + "/gpu" }

// write replaces the file as a whole, without a sync, as the CDI library of the example driver does.
func (n *node) write(claim types.UID, specification any) error {
	text, err := json.Marshal(specification)
	if err != nil {
		return err
	}
	file := n.file(claim)
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func (n *node) file(claim types.UID) string {
	return filepath.Join(n.folder, "cdi", string(claim)+".json")
}

func (n *node) statusOf(given resourceapi.DeviceRequestAllocationResult) resourceapi.AllocatedDeviceStatus {
	known := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	for _, device := range n.all() {
		if device.Name == given.Device {
			known = device.Attributes
			delete(known, "index")
		}
	}
	text, _ := json.Marshal(known)
	return resourceapi.AllocatedDeviceStatus{
		Driver: given.Driver, Pool: given.Pool, Device: given.Device, Data: &runtime.RawExtension{Raw: text},
	}
}

// tell reads the claim once more and replaces its status, as the example driver does: two requests.
func (n *node) tell(ctx context.Context, claim *resourceapi.ResourceClaim, devices []resourceapi.AllocatedDeviceStatus) error {
	claims := n.claims.ResourceClaims(claim.Namespace)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		current, err := claims.Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		current = current.DeepCopy()
		current.Status.Devices = devices
		_, err = claims.UpdateStatus(ctx, current, metav1.UpdateOptions{})
		return err
	})
}

// UnprepareResourceClaims takes the files away and forgets. The helper never has two calls at work at a time.
func (n *node) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	answers := map[types.UID]error{}
	for _, claim := range claims {
		err := os.Remove(n.file(claim.UID))
		if os.IsNotExist(err) {
			err = nil
		}
		delete(n.prepared, claim.UID)
		answers[claim.UID] = err
	}
	return answers, nil
}
