from functools import partial

from nanoengine.context import captured_context


def compute(model, buffers, bucket):
    rows = slice(0, bucket)
    with captured_context(buffers.context(bucket)):
        buffers.hidden_states[rows] = model(buffers.input_ids[rows], buffers.positions[rows])


def capture_all(model, buffers, buckets, new_graph):
    graphs, pool = {}, None
    for bucket in sorted(buckets)[::-1]:
        body = partial(compute, model, buffers, bucket)
        body()
        graph = graphs.setdefault(bucket, new_graph(bucket))
        graph.capture(body, pool)
        if pool is None:
            pool = graph.pool()
    return dict(sorted(graphs.items()))
