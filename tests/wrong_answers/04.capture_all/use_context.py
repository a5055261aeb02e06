# check: replay inside a step
# words: raised EngineError|captured_context may be opened inside a step
# why: contexts of steps do not nest
# passes ordinary: no
from nanoengine.context import use_context


def capture_all(model, buffers, buckets, new_graph):
    graphs, pool = {}, None
    for bucket in sorted(buckets, reverse=True):

        def body(bucket=bucket):
            with use_context(buffers.context(bucket)):
                hidden = model(buffers.input_ids[:bucket], buffers.positions[:bucket])
            buffers.hidden_states[:bucket] = hidden

        body()
        graph = new_graph(bucket)
        graph.capture(body, pool)
        pool = graph.pool() if pool is None else pool
        graphs[bucket] = graph
    return graphs
