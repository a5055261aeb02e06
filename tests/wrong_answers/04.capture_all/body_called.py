# check: a graph for every bucket
# words: capture wants the body itself
# why: capture(body(), pool) runs the body and hands over its None
# passes ordinary: no
from nanoengine.context import captured_context


def capture_all(model, buffers, buckets, new_graph):
    graphs, pool = {}, None
    for bucket in sorted(buckets, reverse=True):

        def body(bucket=bucket):
            with captured_context(buffers.context(bucket)):
                hidden = model(buffers.input_ids[:bucket], buffers.positions[:bucket])
            buffers.hidden_states[:bucket] = hidden

        body()
        graph = new_graph(bucket)
        graph.capture(body(), pool)
        pool = graph.pool() if pool is None else pool
        graphs[bucket] = graph
    return graphs
