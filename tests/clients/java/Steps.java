// fabric8's Java client, whose watches ask for a websocket first.

import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.ConfigMapList;
import io.fabric8.kubernetes.api.model.DeletionPropagation;
import io.fabric8.kubernetes.api.model.ListOptionsBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.Watch;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.Resource;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderCallbacks;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderElectionConfigBuilder;
import io.fabric8.kubernetes.client.extended.leaderelection.resourcelock.LeaseLock;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

public class Steps {
  static final List<String> NAMES = List.of("a", "b", "c", "d", "e");
  static KubernetesClient client;

  public static void main(String[] words) throws Exception {
    client = new KubernetesClientBuilder().build();

    for (String name : NAMES) {
      client.resource(map(name).build()).create();
    }
    done("create");

    List<String> names = new ArrayList<>();
    String proceed = null;
    do {
      var options = new ListOptionsBuilder().withLimit(2L).withContinue(proceed).build();
      ConfigMapList page = client.configMaps().inNamespace("default").list(options);
      page.getItems().forEach(item -> names.add(item.getMetadata().getName()));
      proceed = page.getMetadata().getContinue();
    } while (proceed != null && !proceed.isEmpty());
    check(names.equals(NAMES), names);
    done("list");

    for (int times = 0; times < 2; times++) {
      var all = new CountDownLatch(NAMES.size());
      var ended = new CountDownLatch(1);
      var options = new ListOptionsBuilder().withTimeoutSeconds(1L).build();
      try (Watch watch = client.configMaps().inNamespace("default").watch(options, watcher(all, ended))) {
        check(all.await(20, TimeUnit.SECONDS), "the events do not come");
        Thread.sleep(1500); // longer than the watch: it is asked for again
      }
    }
    done("watch");

    var numbers = new ConcurrentLinkedQueue<String>();
    try (var informer = client.configMaps().inNamespace("default").inform(changes(numbers))) {
      check(informer.getStore().list().size() == NAMES.size(), informer.getStore().list());
      for (String number : List.of("1", "2")) {
        one("e").edit(found -> new ConfigMapBuilder(found).addToData("number", number).build());
        until(() -> numbers.contains(number));
      }
    }
    done("informer");

    patch(PatchType.JSON, "[{\"op\":\"add\",\"path\":\"/data\",\"value\":{\"json\":\"1\"}}]");
    patch(PatchType.JSON_MERGE, "{\"data\":{\"merge\":\"1\"}}");
    patch(PatchType.STRATEGIC_MERGE, "{\"data\":{\"strategic\":\"1\"}}");
    client.resource(map("a").addToData("apply", "1").build()).fieldManager("me").serverSideApply();
    var keys = one("a").get().getData().keySet();
    check(keys.equals(Set.of("json", "merge", "strategic", "apply")), keys);
    done("patch");

    makeDependent("kept", "a");
    one("a").withPropagationPolicy(DeletionPropagation.ORPHAN).delete();
    until(() -> one("kept").get().getMetadata().getOwnerReferences().isEmpty());
    makeDependent("gone", "b");
    one("b").withPropagationPolicy(DeletionPropagation.FOREGROUND).delete();
    until(() -> one("gone").get() == null && one("b").get() == null);
    done("delete");

    var leads = new CountDownLatch(1);
    var election =
        new LeaderElectionConfigBuilder()
            .withName("steps")
            .withLock(new LeaseLock("default", "lease", "me"))
            .withLeaseDuration(Duration.ofSeconds(3))
            .withRenewDeadline(Duration.ofSeconds(2))
            .withRetryPeriod(Duration.ofMillis(500))
            .withLeaderCallbacks(new LeaderCallbacks(leads::countDown, () -> {}, leader -> {}))
            .build();
    client.leaderElector().withConfig(election).build().start();
    check(leads.await(20, TimeUnit.SECONDS), "nobody leads");
    done("election");
    System.exit(0);
  }

  static void done(String step) {
    System.out.println(step);
  }

  static void check(boolean holds, Object found) {
    if (!holds) {
      throw new IllegalStateException(String.valueOf(found));
    }
  }

  static void until(BooleanSupplier holds) throws InterruptedException {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
    while (!holds.getAsBoolean()) {
      check(System.nanoTime() < end, "it does not come true");
      Thread.sleep(10);
    }
  }

  static Resource<ConfigMap> one(String name) {
    return client.configMaps().inNamespace("default").withName(name);
  }

  static ConfigMapBuilder map(String name) {
    return new ConfigMapBuilder()
        .withNewMetadata().withName(name).withNamespace("default").addToLabels("for", "steps").endMetadata();
  }

  static void patch(PatchType type, String body) {
    one("a").patch(PatchContext.of(type), body);
  }

  static void makeDependent(String name, String owner) {
    var uid = one(owner).get().getMetadata().getUid();
    var made =
        map(name)
            .editMetadata()
            .addNewOwnerReference()
            .withApiVersion("v1").withKind("ConfigMap").withName(owner).withUid(uid)
            .withBlockOwnerDeletion(true)
            .endOwnerReference()
            .endMetadata();
    client.resource(made.build()).create();
  }

  static ResourceEventHandler<ConfigMap> changes(Queue<String> numbers) {
    return new ResourceEventHandler<>() {
      @Override
      public void onAdd(ConfigMap found) {}

      @Override
      public void onUpdate(ConfigMap before, ConfigMap found) {
        numbers.add(found.getData().get("number"));
      }

      @Override
      public void onDelete(ConfigMap found, boolean unknown) {}
    };
  }

  static Watcher<ConfigMap> watcher(CountDownLatch all, CountDownLatch ended) {
    return new Watcher<>() {
      @Override
      public void eventReceived(Action action, ConfigMap found) {
        all.countDown();
      }

      @Override
      public void onClose(WatcherException cause) {
        ended.countDown();
      }
    };
  }
}
