-- Every auction that was won, with the bid that won it.
WITH ranked AS (
    SELECT
        auction.*,
        bid.auction, bid.bidder, bid.price, bid.date_time AS bid_date_time, bid.extra AS bid_extra,
        ROW_NUMBER() OVER (PARTITION BY auction.id ORDER BY bid.price DESC, bid.date_time, bid.event_number) AS place
    FROM auction
    JOIN bid ON bid.auction = auction.id
    WHERE bid.date_time BETWEEN auction.date_time AND auction.expires
)
SELECT
    id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, extra,
    auction, bidder, price, bid_date_time, bid_extra
FROM ranked
WHERE place = 1
