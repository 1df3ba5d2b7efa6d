// Package steps has what each client does, and how it says that it did.
package steps

import (
	"fmt"
	"os"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Maps are the config maps that are made.
var Maps = []string{"a", "b", "c", "d", "e"}

// Namespace is where all of it happens.
const Namespace = "default"

// Patches are the four ways, each of which adds the key of its name.
var Patches = map[types.PatchType]string{
	types.JSONPatchType:           `[{"op": "add", "path": "/data", "value": {"json": "1"}}]`,
	types.MergePatchType:          `{"data": {"merge": "1"}}`,
	types.StrategicMergePatchType: `{"data": {"strategic": "1"}}`,
	types.ApplyPatchType: `{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": {"name": "a", "namespace": "default"}, "data": {"apply": "1"}}`,
}

// Order is the one in which they are sent: the first replaces all that is there.
var Order = []types.PatchType{
	types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyPatchType,
}

// Patched is what a config map has after them.
var Patched = map[string]string{"json": "1", "merge": "1", "strategic": "1", "apply": "1"}

// Done says that a step was done and checked.
func Done(step string) {
	fmt.Println(step)
}

// Must ends the program for an error.
func Must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Equal ends the program if the two are not.
func Equal(got, wanted any) {
	if !reflect.DeepEqual(got, wanted) {
		Must(fmt.Errorf("got %v, wanted %v", got, wanted))
	}
}

// Map is a config map, which goes with its owner if it has one.
func Map(name string, owner *corev1.ConfigMap) *corev1.ConfigMap {
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace}}
	if owner != nil {
		blocks := true
		made.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID,
			BlockOwnerDeletion: &blocks,
		}}
	}
	return made
}

// Until waits for a fact.
func Until(holds func() bool) {
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			Must(fmt.Errorf("it does not come true"))
		}
	}
}
