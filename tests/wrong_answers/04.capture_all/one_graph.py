# check: a graph for every bucket
# words: graphs[1] is the graph that new_graph made for 4
# why: the same object captured again and again
# passes ordinary: no
from nanoengine.context import captured_context


def capture_all(model, buffers, buckets, new_graph):
    graphs, pool, graph = {}, None, new_graph(max(buckets))
    for bucket in sorted(buckets, reverse=True):

        def body(bucket=bucket):
            with captured_context(buffers.context(bucket)):
                hidden = model(buffers.input_ids[:bucket], buffers.positions[:bucket])
            buffers.hidden_states[:bucket] = hidden

        body()
        graph.capture(body, pool)
        pool = graph.pool() if pool is None else pool
        graphs[bucket] = graph
    return graphs
