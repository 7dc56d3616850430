-- Per category, the average of its auctions' highest valid bids; an auction without a valid bid does not count.
-- The exact sum is divided once, so that it does not matter how an engine's own AVG adds and rounds.
WITH closing AS (
    SELECT auction.id, auction.category, MAX(bid.price) AS price
    FROM auction
    JOIN bid ON bid.auction = auction.id
    WHERE bid.date_time BETWEEN auction.date_time AND auction.expires
    GROUP BY auction.id, auction.category
)
SELECT category AS id, CAST(SUM(price) AS DOUBLE) / CAST(NULLIF(COUNT(price), 0) AS DOUBLE) AS final
FROM closing
GROUP BY category
