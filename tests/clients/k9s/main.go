// What k9s asks of a server before and while it shows a table, by its own packages. They are
// internal: this is built in the tree of its release.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/derailed/k9s/internal/client"
	"github.com/derailed/k9s/internal/watch"
)

const namespace = "default"

var claimGVR = client.NewGVR("resource.k8s.io/v1/resourceclaims")

func main() {
	flags, timeout := genericclioptions.NewConfigFlags(client.UsePersistentConfig), "10s"
	flags.Timeout = &timeout
	connection, err := client.InitConnection(client.NewConfig(flags), slog.Default())
	must(err)
	connect(connection)
	discover(connection)
	inform(connection)
	show(connection)
}

// connect is what its header shows: version, namespaces, and that nobody measures pods.
func connect(connection *client.APIClient) {
	version, err := connection.ServerVersion()
	must(err)
	names, err := connection.ValidNamespaceNames()
	must(err)
	_, there := names[namespace]
	if !connection.CheckConnectivity() || version.Major != "1" || !there || connection.HasMetrics() {
		must(fmt.Errorf("version %v, namespaces %v", version, names))
	}
	fmt.Println("connection")
}

// discover finds the kinds that it takes commands for, and what its user may do with them.
func discover(connection *client.APIClient) {
	cached, err := connection.CachedDiscovery()
	must(err)
	lists, err := cached.ServerPreferredResources()
	must(err)
	found := map[string]bool{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			gvr := client.FromGVAndR(list.GroupVersion, resource.Name)
			found[gvr.String()] = strings.Contains(resource.Verbs.String(), "watch")
		}
	}

	for _, gvr := range []*client.GVR{client.PodGVR, client.DpGVR, claimGVR} {
		may, err := connection.CanI(namespace, gvr, "", client.ListAccess)
		must(err)
		if !found[gvr.String()] || !may {
			must(fmt.Errorf("%s: may list: %v, found: %v", gvr, may, found))
		}
	}
	fmt.Println("kinds")
}

// inform has the pods from its informers, as its view of pods does.
func inform(connection *client.APIClient) {
	factory := watch.NewFactory(connection)
	factory.Start(namespace)
	defer factory.Terminate()

	pods, err := factory.List(client.PodGVR, namespace, true, labels.Everything())
	must(err)
	if len(pods) != 1 || pods[0].(*unstructured.Unstructured).GetName() != "trainer" {
		must(fmt.Errorf("pods: %v", pods))
	}
	fmt.Println("pods")
}

// show asks for claims as a table, which is how it shows a kind that it knows nothing of.
func show(connection *client.APIClient) {
	clients, err := connection.Dial()
	must(err)
	accepted := []string{}
	for _, version := range []string{"v1", "v1beta1"} {
		accepted = append(accepted, "application/json;as=Table;g=meta.k8s.io;v="+version)
	}

	var table metav1.Table
	must(clients.ResourceV1().RESTClient().Get().
		SetHeader("Accept", strings.Join(append(accepted, "application/json"), ",")).
		Param("includeObject", "Metadata").
		Namespace(namespace).Resource(claimGVR.R()).
		Do(context.Background()).Into(&table))
	if len(table.Rows) != 1 || fmt.Sprint(table.Rows[0].Cells[:2]) != "[two-gpus pending]" {
		must(fmt.Errorf("rows: %v", table.Rows))
	}
	fmt.Println("claims")
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
