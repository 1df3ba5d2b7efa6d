// Many nodes of a driver that is written with Kubernetes' own library, in one process: what `make scale` sets beside as many of
// ours. Each has the helper, the client and the connection that a node's own process would have, at the rates that the example
// driver sets by default.
//
// It reads commands from its standard input and writes what has happened as JSON, one object a line; it ends when its input does.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A program of its own has these by default: kube-api-qps and kube-api-burst of the example driver.
const requestsPerSecond, burst = 5, 10

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	kubeconfig := flag.String("kubeconfig", "", "of the API server")
	nodes := flag.Int("nodes", 1, "how many")
	prefix := flag.String("prefix", "peer", "of the nodes' names")
	folder := flag.String("folder", "", "in which each node has one with its sockets and CDI files")
	devices := flag.Int("devices", 8, "of each node")
	driver := flag.String("driver", "peer.claimd.dev", "its name")
	status := flag.Bool("status", false, "write the status of prepared devices into the claim")
	atOnce := flag.Int("at-once", 0, "how many nodes may be between their start and their slice; 0: all")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst, config.UserAgent = requestsPerSecond, burst, "scale-peer"

	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()

	all := &fleet{config: config, driver: *driver, devices: *devices, status: *status}
	for number := range *nodes {
		name := fmt.Sprintf("%s-%05d", *prefix, number)
		all.nodes = append(all.nodes, &node{fleet: all, name: name, folder: filepath.Join(*folder, name)})
	}

	// A first storm may last, and what comes on stdin has to be heard all the same.
	lines := make(chan string)
	go func() {
		defer close(lines)
		for input := bufio.NewScanner(os.Stdin); input.Scan(); {
			lines <- input.Text()
		}
	}()
	go all.start(ctx, *atOnce)
	all.obey(ctx, lines)

	cancel()
	each(all.nodes, len(all.nodes), (*node).stop)
	return nil
}

// fleet is what all nodes share: nothing that a request to the API server would pass through.
type fleet struct {
	config  *rest.Config
	driver  string
	devices int
	status  bool
	nodes   []*node
	sick    atomic.Int64 // so many devices of each have a taint

	mutex  sync.Mutex
	goal   *goal
	errors int
}

// goal is what the nodes are on their way to: the event's name, and how many are there.
type goal struct {
	event         string
	there, spoken int
}

// set gives the nodes another goal; the one before is given up.
func (f *fleet) set(event string) *goal {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.goal = &goal{event: event}
	return f.goal
}

// reached counts a node in. The last one is said at once, the others by `obey`, once a second.
func (f *fleet) reached(of *goal) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	of.there++
	if of.there == len(f.nodes) {
		f.say(of)
	}
}

func (f *fleet) say(of *goal) {
	if of != nil && of == f.goal && of.there != of.spoken {
		of.spoken = of.there
		emit(map[string]any{"event": of.event, "n": of.there})
	}
}

// failed says the first errors, and then how many there are, once a second.
func (f *fleet) failed(text string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.errors++; f.errors <= 3 {
		emit(map[string]any{"event": "error", "text": text})
	}
}

// start opens the sockets of every node, then publishes, as a process for each would do.
func (f *fleet) start(ctx context.Context, width int) {
	published := f.set("published")
	each(f.nodes, len(f.nodes), func(n *node) { n.serve(ctx) })
	emit(map[string]any{"event": "started", "n": len(f.nodes)})

	if width == 0 {
		width = len(f.nodes)
	}
	each(f.nodes, width, func(n *node) { n.publishAndWait(ctx, published) })
}

// restart is a rolling update: no more than `width` nodes are without a slice's publisher at a time.
func (f *fleet) restart(ctx context.Context, width int) {
	restarted := f.set("restarted")
	each(f.nodes, width, func(n *node) {
		n.stop()
		n.serve(ctx)
		n.publishAndWait(ctx, restarted)
	})
}

// change has all nodes publish, at once, what may be what they have published.
func (f *fleet) change(event string) {
	changed := f.set(event)
	each(f.nodes, len(f.nodes), func(n *node) {
		n.aim(changed)
		n.publish()
	})
}

// obey follows the commands to their end.
func (f *fleet) obey(ctx context.Context, lines <-chan string) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for said := 3; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f.mutex.Lock()
			f.say(f.goal)
			if f.errors > said {
				said = f.errors
				emit(map[string]any{"event": "error", "text": fmt.Sprintf("%d errors until now", said)})
			}
			f.mutex.Unlock()
		case line, more := <-lines:
			if !more || line == "stop" {
				return
			}
			f.follow(ctx, line)
		}
	}
}

func (f *fleet) follow(ctx context.Context, line string) {
	word, rest, _ := strings.Cut(line, " ")
	width, err := strconv.Atoi(rest)
	switch {
	case line == "taint third":
		f.sick.Store(int64(f.devices+2) / 3)
		go f.change("tainted")
	case line == "untaint":
		f.sick.Store(0)
		go f.change("untainted")
	case line == "republish":
		go f.change("republished")
	case word == "restart" && err == nil && width > 0:
		go f.restart(ctx, width)
	default:
		f.failed("no such command: " + line)
	}
}

// each calls for all nodes, at most `width` at a time, and returns when all have returned.
func each(nodes []*node, width int, call func(*node)) {
	slots := make(chan struct{}, width)
	var all sync.WaitGroup
	for _, one := range nodes {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			call(one)
		})
	}
	all.Wait()
}

var output sync.Mutex

func emit(event map[string]any) {
	event["t"] = float64(time.Now().UnixMicro()) / 1e6
	line, _ := json.Marshal(event)
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(line, '\n'))
}
