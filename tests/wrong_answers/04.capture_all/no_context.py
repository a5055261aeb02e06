# check: the model's inputs
# words: no context is in use when the model runs
# why: attention has nothing to look up
# passes ordinary: no
def capture_all(model, buffers, buckets, new_graph):
    graphs, pool = {}, None
    for bucket in sorted(buckets, reverse=True):

        def body(bucket=bucket):
            hidden = model(buffers.input_ids[:bucket], buffers.positions[:bucket])
            buffers.hidden_states[:bucket] = hidden

        body()
        graph = new_graph(bucket)
        graph.capture(body, pool)
        pool = graph.pool() if pool is None else pool
        graphs[bucket] = graph
    return graphs
