// The steps with client-go: a typed client that speaks protobuf, informers, leader election and
// both of its event recorders.
package main

import (
	"context"
	"maps"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"

	"claimd.test/clients/steps"
)

func main() {
	ctx := context.Background()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	steps.Must(err)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(config)
	steps.Must(err)
	configMaps := client.CoreV1().ConfigMaps(steps.Namespace)

	create(ctx, configMaps)
	list(ctx, configMaps)
	watch(ctx, configMaps)
	inform(ctx, client)
	patch(ctx, configMaps)
	remove(ctx, configMaps)
	lead(ctx, client)
	tell(ctx, client)
}

func create(ctx context.Context, configMaps typed.ConfigMapInterface) {
	for _, name := range steps.Maps {
		_, err := configMaps.Create(ctx, steps.Map(name, nil), metav1.CreateOptions{})
		steps.Must(err)
	}
	steps.Done("create")
}

func list(ctx context.Context, configMaps typed.ConfigMapInterface) {
	names, proceed := []string{}, ""
	for first := true; first || proceed != ""; first = false {
		page, err := configMaps.List(ctx, metav1.ListOptions{Limit: 2, Continue: proceed})
		steps.Must(err)
		for _, item := range page.Items {
			names = append(names, item.Name)
		}
		proceed = page.Continue
	}
	steps.Equal(names, steps.Maps)
	steps.Done("list")
}

func watch(ctx context.Context, configMaps typed.ConfigMapInterface) {
	second := int64(1)
	for range 3 {
		watched, err := configMaps.Watch(ctx, metav1.ListOptions{TimeoutSeconds: &second})
		steps.Must(err)
		seen := []string{}
		for event := range watched.ResultChan() {
			seen = append(seen, event.Object.(*corev1.ConfigMap).Name)
		}
		steps.Equal(seen, steps.Maps)

		_, err = configMaps.Get(ctx, "a", metav1.GetOptions{})
		steps.Must(err)
	}
	steps.Done("watch")
}

// inform has an informer whose watches end each second: no change is lost between two of them.
func inform(ctx context.Context, client kubernetes.Interface) {
	second := int64(1)
	factory := informers.NewSharedInformerFactoryWithOptions(
		client, 0, informers.WithNamespace(steps.Namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.TimeoutSeconds = &second
		}),
	)

	var lock sync.Mutex
	informed := map[string]string{}
	note := func(obj any) {
		lock.Lock()
		defer lock.Unlock()
		found := obj.(*corev1.ConfigMap)
		informed[found.Name] = found.Data["number"]
	}
	_, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(
		cache.ResourceEventHandlerFuncs{AddFunc: note, UpdateFunc: func(_, obj any) { note(obj) }},
	)
	steps.Must(err)
	stop := make(chan struct{})
	defer close(stop)
	factory.Start(stop)
	factory.WaitForCacheSync(stop)

	configMaps := client.CoreV1().ConfigMaps(steps.Namespace)
	for _, number := range []string{"1", "2", "3", "4"} {
		found, err := configMaps.Get(ctx, "e", metav1.GetOptions{})
		steps.Must(err)
		found.Data = map[string]string{"number": number}
		_, err = configMaps.Update(ctx, found, metav1.UpdateOptions{})
		steps.Must(err)
		steps.Until(func() bool {
			lock.Lock()
			defer lock.Unlock()
			return informed["e"] == number
		})
		time.Sleep(600 * time.Millisecond) // so that four changes come by more than one watch
	}
	steps.Done("informer")
}

func patch(ctx context.Context, configMaps typed.ConfigMapInterface) {
	for _, way := range steps.Order {
		options := metav1.PatchOptions{FieldManager: "me"}
		_, err := configMaps.Patch(ctx, "a", way, []byte(steps.Patches[way]), options)
		steps.Must(err)
	}
	patched, err := configMaps.Get(ctx, "a", metav1.GetOptions{})
	steps.Must(err)
	steps.Equal(patched.Data, steps.Patched)
	steps.Done("patch")
}

func remove(ctx context.Context, configMaps typed.ConfigMapInterface) {
	orphan, foreground := metav1.DeletePropagationOrphan, metav1.DeletePropagationForeground
	makeDependent := func(name, owner string) {
		found, err := configMaps.Get(ctx, owner, metav1.GetOptions{})
		steps.Must(err)
		_, err = configMaps.Create(ctx, steps.Map(name, found), metav1.CreateOptions{})
		steps.Must(err)
	}
	isGone := func(name string) bool {
		_, err := configMaps.Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}

	makeDependent("kept", "a")
	steps.Must(configMaps.Delete(ctx, "a", metav1.DeleteOptions{PropagationPolicy: &orphan}))
	steps.Until(func() bool {
		kept, err := configMaps.Get(ctx, "kept", metav1.GetOptions{})
		steps.Must(err)
		return len(kept.OwnerReferences) == 0
	})

	makeDependent("gone", "b")
	steps.Must(configMaps.Delete(ctx, "b", metav1.DeleteOptions{PropagationPolicy: &foreground}))
	steps.Until(func() bool { return isGone("gone") && isGone("b") })
	steps.Done("delete")
}

func lead(ctx context.Context, client kubernetes.Interface) {
	leads := make(chan struct{})
	lease := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: "lease", Namespace: steps.Namespace},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: "me"},
	}
	go leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock:          lease,
		LeaseDuration: 3 * time.Second,
		RenewDeadline: 2 * time.Second,
		RetryPeriod:   500 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(leads) },
			OnStoppedLeading: func() {},
		},
	})
	<-leads

	renewed := func() time.Time {
		leases := client.CoordinationV1().Leases(steps.Namespace)
		found, err := leases.Get(ctx, "lease", metav1.GetOptions{})
		steps.Must(err)
		return found.Spec.RenewTime.Time
	}
	first := renewed()
	steps.Until(func() bool { return renewed().After(first) })
	steps.Done("election")
}

// tell tells the same twice, to each of the two recorders: the second time is counted.
func tell(ctx context.Context, client kubernetes.Interface) {
	about, err := client.CoreV1().ConfigMaps(steps.Namespace).Get(ctx, "c", metav1.GetOptions{})
	steps.Must(err)

	older := record.NewBroadcaster()
	older.StartRecordingToSink(&typed.EventSinkImpl{Interface: client.CoreV1().Events("")})
	olderRecorder := older.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "steps"})
	newer := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	steps.Must(newer.StartRecordingToSinkWithContext(ctx))
	newerRecorder := newer.NewRecorder(scheme.Scheme, "steps")

	for _, times := range []int32{1, 2} {
		olderRecorder.Event(about, corev1.EventTypeNormal, "Older", "told")
		newerRecorder.Eventf(about, nil, corev1.EventTypeNormal, "Newer", "Tell", "told")
		wanted := map[string]int32{"Older": times, "Newer": times}
		steps.Until(func() bool { return maps.Equal(told(ctx, client), wanted) })
	}
	steps.Done("events")
}

// told is how often each was told of, as the newer API has it of both.
func told(ctx context.Context, client kubernetes.Interface) map[string]int32 {
	found, err := client.EventsV1().Events(steps.Namespace).List(ctx, metav1.ListOptions{})
	steps.Must(err)
	counts := map[string]int32{}
	for _, event := range found.Items {
		counts[event.Reason] = countOf(event)
	}
	return counts
}

func countOf(event eventsv1.Event) int32 {
	if event.Series != nil {
		return event.Series.Count
	}
	if event.DeprecatedCount != 0 {
		return event.DeprecatedCount
	}
	return 1
}
