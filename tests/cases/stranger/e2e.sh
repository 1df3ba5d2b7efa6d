#!/bin/sh
# The same in shell, for a suite in any language: run as `claimd sim --node node-1 -- ./e2e.sh`.
set -eu
python driver.py node-1 "$SIM_FOLDER/node-1/kubelet" "$SIM_FOLDER/node-1/cdi" &

kubectl apply -f manifests
kubectl wait pod/user --for=jsonpath='{.status.phase}'=Succeeded --timeout=60s
kubectl logs user | grep 'got widget-'
