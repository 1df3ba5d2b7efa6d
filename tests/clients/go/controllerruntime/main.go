// The steps with controller-runtime: a client, and a manager with a cache, a reconciler, leader
// election and an event recorder.
package main

import (
	"context"
	"os"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"claimd.test/clients/steps"
)

func main() {
	ctx := context.Background()
	log.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	steps.Must(err)
	direct, err := client.NewWithWatch(config, client.Options{})
	steps.Must(err)

	create(ctx, direct)
	list(ctx, direct)
	watch(ctx, direct)
	manage(ctx, config, direct)
	patch(ctx, direct)
	remove(ctx, direct)
}

func create(ctx context.Context, direct client.Client) {
	for _, name := range steps.Maps {
		steps.Must(direct.Create(ctx, steps.Map(name, nil)))
	}
	steps.Done("create")
}

func list(ctx context.Context, direct client.Client) {
	names, proceed := []string{}, ""
	for first := true; first || proceed != ""; first = false {
		var page corev1.ConfigMapList
		steps.Must(direct.List(ctx, &page, client.InNamespace(steps.Namespace), client.Limit(2),
			client.Continue(proceed)))
		for _, item := range page.Items {
			names = append(names, item.Name)
		}
		proceed = page.Continue
	}
	steps.Equal(names, steps.Maps)
	steps.Done("list")
}

func watch(ctx context.Context, direct client.WithWatch) {
	second := int64(1)
	for range 3 {
		watched, err := direct.Watch(ctx, &corev1.ConfigMapList{}, &client.ListOptions{
			Namespace: steps.Namespace, Raw: &metav1.ListOptions{TimeoutSeconds: &second},
		})
		steps.Must(err)
		seen := []string{}
		for event := range watched.ResultChan() {
			seen = append(seen, event.Object.(*corev1.ConfigMap).Name)
		}
		steps.Equal(seen, steps.Maps)
		read(ctx, direct, "a")
	}
	steps.Done("watch")
}

// manage has a controller whose reconciler sees each change in its cache, and tells of each.
func manage(ctx context.Context, config *rest.Config, direct client.Client) {
	lease, renew, retry := 3*time.Second, 2*time.Second, 500*time.Millisecond
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics:                 server.Options{BindAddress: "0"},
		LeaderElection:          true,
		LeaderElectionID:        "lease",
		LeaderElectionNamespace: steps.Namespace,
		LeaseDuration:           &lease,
		RenewDeadline:           &renew,
		RetryPeriod:             &retry,
	})
	steps.Must(err)

	var lock sync.Mutex
	reconciled := map[string]string{}
	recorder := manager.GetEventRecorder("steps")
	reconciler := func(ctx context.Context, asked reconcile.Request) (reconcile.Result, error) {
		var found corev1.ConfigMap
		if err := manager.GetClient().Get(ctx, asked.NamespacedName, &found); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		lock.Lock()
		defer lock.Unlock()
		reconciled[found.Name] = found.Data["number"]
		if found.Data["number"] != "" {
			recorder.Eventf(&found, nil, corev1.EventTypeNormal, "Seen", "Reconcile", "number %s",
				found.Data["number"])
		}
		return reconcile.Result{}, nil
	}
	steps.Must(ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).
		Complete(reconcile.Func(reconciler)))
	go func() { steps.Must(manager.Start(ctx)) }()
	<-manager.Elected()

	for _, number := range []string{"1", "2", "3"} {
		found := read(ctx, direct, "e")
		found.Data = map[string]string{"number": number}
		steps.Must(direct.Update(ctx, found))
		steps.Until(func() bool {
			lock.Lock()
			defer lock.Unlock()
			return reconciled["e"] == number
		})
	}
	steps.Done("informer")

	first := renewed(ctx, direct)
	steps.Until(func() bool { return renewed(ctx, direct).After(first) })
	steps.Done("election")

	steps.Until(func() bool {
		var found eventsv1.EventList
		steps.Must(direct.List(ctx, &found, client.InNamespace(steps.Namespace)))
		notes := map[string]bool{}
		for _, event := range found.Items {
			if event.Regarding.Name == "e" && event.Reason == "Seen" {
				notes[event.Note] = true
			}
		}
		return notes["number 1"] && notes["number 2"] && notes["number 3"]
	})
	steps.Done("events")
}

func renewed(ctx context.Context, direct client.Client) time.Time {
	var found coordinationv1.Lease
	key := client.ObjectKey{Namespace: steps.Namespace, Name: "lease"}
	steps.Must(direct.Get(ctx, key, &found))
	return found.Spec.RenewTime.Time
}

func patch(ctx context.Context, direct client.Client) {
	for _, way := range steps.Order {
		change := client.RawPatch(way, []byte(steps.Patches[way]))
		steps.Must(direct.Patch(ctx, steps.Map("a", nil), change, client.FieldOwner("me")))
	}
	steps.Equal(read(ctx, direct, "a").Data, steps.Patched)
	steps.Done("patch")
}

func remove(ctx context.Context, direct client.Client) {
	owner := read(ctx, direct, "a")
	steps.Must(direct.Create(ctx, steps.Map("kept", owner)))
	orphans := client.PropagationPolicy(metav1.DeletePropagationOrphan)
	steps.Must(direct.Delete(ctx, owner, orphans))
	steps.Until(func() bool { return len(read(ctx, direct, "kept").OwnerReferences) == 0 })

	owner = read(ctx, direct, "b")
	steps.Must(direct.Create(ctx, steps.Map("gone", owner)))
	foreground := client.PropagationPolicy(metav1.DeletePropagationForeground)
	steps.Must(direct.Delete(ctx, owner, foreground))
	steps.Until(func() bool { return isGone(ctx, direct, "gone") && isGone(ctx, direct, "b") })
	steps.Done("delete")
}

func read(ctx context.Context, direct client.Client, name string) *corev1.ConfigMap {
	var found corev1.ConfigMap
	steps.Must(direct.Get(ctx, client.ObjectKey{Namespace: steps.Namespace, Name: name}, &found))
	return &found
}

func isGone(ctx context.Context, direct client.Client, name string) bool {
	var left corev1.ConfigMap
	err := direct.Get(ctx, client.ObjectKey{Namespace: steps.Namespace, Name: name}, &left)
	return apierrors.IsNotFound(err)
}
